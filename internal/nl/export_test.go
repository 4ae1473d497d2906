package nl

// WatchBuffered is Watch with a receive buffer of another size, so that a test can make the kernel lose notifications.
var WatchBuffered = watch
