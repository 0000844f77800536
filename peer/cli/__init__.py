"""What each `shoal` command does. Only here is the environment read and the terminal written."""
