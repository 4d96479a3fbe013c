"""The system underneath: processors, memory, environment; machine code in this process, files kept between runs."""
