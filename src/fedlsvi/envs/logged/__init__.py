"""Logged data in place of an environment: tables, arrays and Minari data sets, checked as read."""
