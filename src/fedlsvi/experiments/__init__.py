"""Experiments: sweeps over settings and the analyses that read them."""
