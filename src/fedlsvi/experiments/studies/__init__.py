"""One folder per question: a sweep that makes runs, an analysis that reads them."""

CLAIMS = (
    "theorem-1",
    "theorem-2",
    "theorem-3",
    "communication",
    "stale",
    "single-agent",
    "trigger",
    "centralised",
)
