package nstest
