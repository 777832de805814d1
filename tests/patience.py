"""One limit for every wait in the tests."""

# How long a test waits for something that must happen. Only a failing test waits that long, so it is generous:
# with twenty busy processes on two cores everything takes ten times as long.
PATIENCE_S = 180.0
