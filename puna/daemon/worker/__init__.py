"""The engine worker as the daemon sees it: kept running, with what outlives it."""
