"""What the trigger costs: regret against γ."""
