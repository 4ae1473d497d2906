package packet

import _ "github.com/weirnet/weir/internal/nl" // to the right, and heavy
