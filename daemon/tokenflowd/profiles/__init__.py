"""Profiles: what an engine is started with. TOML files in the folders of `tokenflow.locations.profile_folders`."""
