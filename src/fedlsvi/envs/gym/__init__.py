"""Gymnasium environments; the only place that imports Gymnasium (extra `gym`)."""
