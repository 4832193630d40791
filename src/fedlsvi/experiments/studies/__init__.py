"""One module per question: a sweep says which runs, a finding says what they show."""
