"""What protects uploads, in one process and at sites: fixed point, noise and masks."""
