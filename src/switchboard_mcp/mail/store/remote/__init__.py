"""Messages from and for agents on other machines."""
