"""One module per question: a sweep says which runs, a finding says what they show."""

CLAIMS = (
    "theorem-1",
    "theorem-2",
    "theorem-3",
    "communication",
    "stale",
    "single-agent",
    "trigger",
    "centralised",
    "gaps",
    "periods",
    "averages",
)
