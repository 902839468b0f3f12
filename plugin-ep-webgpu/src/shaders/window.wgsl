$chain
// Parameters: 0 batch, 1 groups, 2 channels in and 3 out of a group, then three numbers each:
// 4 input, 7 output, 10 window, 13 strides, 16 dilations, 19 padding before, 22 padding behind.
