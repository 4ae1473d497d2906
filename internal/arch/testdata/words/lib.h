/* embryo */
#define MAX_EMBRYONIC 3
static int recall_map; // be it here or
// there
