package shed // no place in the order
