"""The textbook steps from the plain loop to this library's product, run and measured one by one."""
