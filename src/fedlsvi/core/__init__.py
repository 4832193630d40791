"""Pure functions: ridge regression, optimistic values, trigger, statistics, theory, randomness."""
