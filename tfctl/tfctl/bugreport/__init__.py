"""What `tfctl bugreport` collects, and what it leaves out."""
