"""A run as a folder: started, resumed, opened when it is finished, compared with others."""
