"""A page that shows runs and federations while they go on (`fedlsvi watch`); it only reads."""
