"""What a cohort sees and remembers: exploration in blocks, the trigger, sufficient statistics."""
