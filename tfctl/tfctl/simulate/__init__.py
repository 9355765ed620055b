"""What `tfctl simulate` is made of; imports the simulator, and with it NumPy."""
