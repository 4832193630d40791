"""Agents in other processes: frames between one server and endpoints, on any engine."""
