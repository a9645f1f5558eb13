"""puna and llama.cpp as servers: started, asked, and watched."""
