"""A study by mail: one file per site in place of a server (`study`, `letter`, `site`, `merge`)."""

STUDY, UPLOADS, POLICY = "study.toml", "uploads", "policy"
"""In the run folder of a study: the study, the files that were merged, and what was learned."""
