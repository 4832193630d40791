"""A federation as it is operated: journals, logs of what left, clusters, projects for sites."""
