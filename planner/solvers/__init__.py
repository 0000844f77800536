"""The search for plans: one module for each strategy, and the portfolio that runs them."""
