"""What `tfctl doctor` looks at: read-only checks of the host, the installation, the daemon and a way to it."""
