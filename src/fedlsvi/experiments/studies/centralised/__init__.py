"""Fed-LSVI beside the learner that sees everything after every episode."""
