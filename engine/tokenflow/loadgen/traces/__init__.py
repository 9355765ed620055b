"""Recorded arrivals and lengths: the published files of Azure, BurstGPT and Mooncake, and a plain CSV."""
