"""What programs share: the terminal, model import, child processes, browsers of this machine."""
