"""Stepwise backward synchronisation against one shot with stale responses."""
