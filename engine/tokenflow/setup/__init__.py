"""What an engine host needs: packages, the demo model, checks of the machine. Imports nothing heavy."""
