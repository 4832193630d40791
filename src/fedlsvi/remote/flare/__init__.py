"""Sites on NVIDIA FLARE; the only place that imports it (extra `flare`)."""
