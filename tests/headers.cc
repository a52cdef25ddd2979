// Nothing: the headers that all tests share are compiled with it, once.
