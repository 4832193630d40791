"""One folder per question: a sweep that makes runs, an analysis that reads them."""
