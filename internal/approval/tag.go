package approval

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// words are short, plain and at least two letters apart in spelling: 256 of
// them, two make one of 65,536 tags. The queue gives no two waiting cards the
// same tag, so a tag always leads to one card. What remains is a tag of
// another moment: that the next card has the tag of one particular earlier
// card happens once in 65,536 cards; that among the cards of a day two have
// the same is as likely as not from 300 cards on. A tag tells windows apart;
// it is no secret and proves nothing.
var words = strings.Fields(`
	acorn agate almond aloe alpine amber anchor anise apple apricot arrow ash aspen autumn badger bamboo banjo
	barley basil bay beacon bear beaver beech bell birch bison bonfire boulder bramble brass breeze brick bronze
	brook buffalo butter cabin cactus camel candle canoe canyon carrot castle cedar cello chalk cherry chestnut
	cinnamon citrus clay cliff clock clover cobalt coconut comet copper coral cotton cow crane cricket crocus
	crystal cypress dahlia daisy dawn deer delta desert dew diamond dolphin donkey dove dragon dune eagle ebony
	elder elephant elm emerald falcon feather fennel fern ferry fiddle fig finch fire flamingo flax flint flute
	forest fossil fox frost galaxy garden garlic garnet geyser ginger giraffe glacier goat goose granite grape
	gravel hammer harbor harp hazel heron hickory holly honey horse hyena iceberg indigo iris iron island ivory
	ivy jade jaguar jasmine jigsaw juniper kayak kelp kettle kite koala ladder lagoon lake lantern larch lark
	laurel lavender lemon leopard lilac lily lime linen lion lizard lobster locust lotus lynx mango maple marble
	marsh meadow melon mill mint mirror moss moth mountain mulberry mustard nectar nickel nutmeg oak oasis oboe
	ocean olive onion onyx opal orchid otter owl paddle palm panda papaya peach pebble pelican penguin pepper
	piano pigeon pine planet plum pony poplar poppy prairie pumpkin puzzle quail quartz rabbit radish raven reef
	river robin saffron salmon sapphire scarlet shell silk silver sparrow spruce squirrel stork sugar sunset swan
	barn thistle thunder tiger timber topaz tulip tundra turtle umbrella valley vanilla velvet violet walnut
	walrus willow window wolf aster zebra zinc`)

// Tag returns the two words that stand on the card and in the agent's result.
func Tag(approvalID string) string {
	h := sha256.Sum256([]byte("yett-tag-v2\n" + approvalID))
	n := uint64(len(words))
	v := binary.BigEndian.Uint64(h[:8])
	return words[v%n] + " " + words[v/n%n]
}
