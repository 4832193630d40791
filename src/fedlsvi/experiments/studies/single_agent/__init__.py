"""One agent: LSVI-UCB with few policy switches."""
