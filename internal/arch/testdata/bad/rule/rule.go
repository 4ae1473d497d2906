package rule

import _ "github.com/weirnet/weir/flow" // a neighbour
