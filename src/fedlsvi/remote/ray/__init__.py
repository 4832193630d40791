"""Agents in Ray actors; the only place that imports Ray (extra `ray`)."""
