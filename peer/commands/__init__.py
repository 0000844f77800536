"""What each `shoal` command does. Only here and in peer.cli is the environment read and the terminal written."""
