"""Algorithms 1 and 2, their messages, and the one driver that plays a run."""
