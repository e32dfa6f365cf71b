"""What agents did: kinds of commands, what they read again, and what pruning had to do with it."""
