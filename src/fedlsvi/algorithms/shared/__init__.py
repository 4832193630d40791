"""What several algorithms are built from."""
