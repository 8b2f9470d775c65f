"""What this machine is: facts read from NVML, torch and the system, and what follows from them."""
