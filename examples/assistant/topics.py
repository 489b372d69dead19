"""What a user may name once: allergies, other harms and delights, in their words, and the questions where they matter.

A topic's statements never use the words of its questions. In one dialogue one thing of a topic is the fact; the `usual`
ones are the assistant's everyday suggestions about the same matter, before and after.
"""

import dataclasses
from typing import Literal

Kind = Literal["allergy", "harm", "delight"]


@dataclasses.dataclass(frozen=True)
class Topic:
    """One matter in which something may harm or delight; `{thing}` and `{usual}` stand for words of its lists."""

    name: str
    kind: Kind
    things: tuple[str, ...]  # what may harm or delight
    statements: tuple[str, ...]  # the user's words for it
    stumbles: tuple[str, ...]  # the assistant, not knowing, comes up with it
    questions: tuple[str, ...]  # where it matters, weeks later
    usual: tuple[str, ...]  # of no importance
    offers: tuple[str, ...]  # the assistant suggests that


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


def _list(text: str) -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(","))


TOPICS = (
    Topic(
        "meals",
        "allergy",
        _list("peanuts, walnuts, cashews, shrimp, crab meat, sesame, mustard seed, celery root, kiwi, lupin flour"),
        _lines("""
            my throat closes up within minutes of a trace of {thing}
            a single crumb of {thing} put me in an ambulance last spring
            my lips blow up like balloons from {thing}
            the hospital gave me a pen to inject because of {thing}
            I stopped breathing after {thing} at a cousin's wedding
            my mother still tells how {thing} nearly finished me when I was six
            the tests came back and {thing} turned out to be the one that could kill me
            I come up in hives all over from {thing}, and each time it is worse
        """),
        _lines("""
            I put the noodles with {thing} in the basket.
            The sauce I chose has plenty of {thing} in it.
            I added the salad with {thing} to the list.
            The chef's special with {thing} is on its way to you.
        """),
        _lines("""
            What shall we order tonight?
            Can you pick something for dinner?
            We are both hungry, which dish would you take?
            Any ideas for the supper with the neighbours?
            What should go on the menu for Saturday?
            Which takeaway do you recommend?
        """),
        _list("""ramen, a margherita, lentil curry, mushroom risotto, bean burritos, falafel, leek soup, baked potatoes,
            spinach pie, gnocchi, a tomato omelette, roast pumpkin"""),
        _lines("""
            Tonight I would order {usual}.
            How about {usual} for dinner?
            The place round the corner has {usual} on the menu.
            I found a recipe for {usual} that takes half an hour.
            For the supper I put down {usual}.
        """),
    ),
    Topic(
        "remedies",
        "allergy",
        _list("penicillin, ibuprofen, aspirin, codeine, sulfa drugs, naproxen, amoxicillin, iodine"),
        _lines("""
            my whole body came up in welts after {thing}
            I went into shock from {thing} when I was a student
            they wrote in red on my chart that {thing} must never be given to me
            after {thing} I could hardly breathe and my sister called the ambulance
            my tongue swelled from {thing} until I was unable to speak
            one dose of {thing} and I woke up in intensive care
            I collapsed in the hallway because of {thing}
        """),
        _lines("""
            I packed {thing} into the first-aid bag.
            There was a bargain on {thing}, so I reserved two boxes.
            I put {thing} on the shelf in your bathroom.
            The courier drops off {thing} at noon.
        """),
        _lines("""
            My head is pounding, which tablet may I take?
            What could help against this fever?
            Can you get me something from the pharmacy for my knee?
            The surgeon asks what painkiller suits me, what shall I answer?
            This tooth hurts a lot, what would you swallow?
        """),
        _list("""chamomile tea, a warm bath, a cold compress, vitamin C, an hour's nap, salt water spray, ginger,
            throat lozenges, a heating pad, honey in milk"""),
        _lines("""
            Against the cough I would try {usual}.
            The pharmacy says {usual} helps most people.
            For your stiff neck I suggest {usual}.
            Before you take a tablet, try {usual}.
        """),
    ),
    Topic(
        "skin",
        "allergy",
        _list("latex, nickel, lanolin, angora wool, tea tree oil, formaldehyde, lavender oil, cobalt dye"),
        _lines("""
            my arms blistered for a week because of {thing}
            I get weeping rashes from {thing} that keep me awake
            a doctor had to cut off my shirt after {thing} touched my neck
            I scratched myself bloody over {thing}
            my hands cracked open from {thing} and got infected
            I looked as if I had been burnt, all from {thing}
        """),
        _lines("""
            I had the set with {thing} wrapped up.
            The salon works with {thing}, and you are down for four o'clock.
            I swapped your old one for a version with {thing}.
            The sample with {thing} is in the post.
        """),
        _lines("""
            Which present would suit me, a scarf, a ring or a lotion?
            What should I wear next to the body?
            Could you choose some gloves for me?
            Which cream shall I buy?
            I want a new bracelet, what do you suggest?
        """),
        _list("""a silk scarf, a cotton jumper, a silver ring, almond cream, a linen jacket, suede boots, a felt hat,
            rose soap, a gold chain, corduroy trousers"""),
        _lines("""
            You could wear {usual} to the office party.
            The shop has {usual} at half price.
            Shall I buy {usual} as a present to yourself?
            I would choose {usual} this season.
        """),
    ),
    Topic(
        "animals",
        "allergy",
        _list("cats, horses, guinea pigs, rabbits, parrots, hamsters, ferrets, goats"),
        _lines("""
            my eyes swell shut in a room where {thing} have been
            after an hour near {thing} I wheeze until I need oxygen
            I had the worst asthma attack of my life from {thing}
            I was rushed to the clinic after stroking {thing} as a child
            my lungs give up around {thing}
            I turned blue at a school fair because of {thing}
        """),
        _lines("""
            I told them you would love to meet their {thing}.
            I signed you up for a morning with {thing}.
            Your room is next to the {thing}, lucky you.
            They keep {thing}, and I said that is a plus.
        """),
        _lines("""
            Which pet would suit our flat?
            Is the farm a good idea for the holidays?
            Should we adopt one from the shelter?
            Could I look after the neighbour's zoo while she travels?
            Shall we spend the weekend at the stables or at the coast?
        """),
        _list("""the hotel by the lake, the hut in the hills, Ada's loft, a houseboat, the old mill, a tent at the river,
            the seaside hostel, the castle inn, a cabin in the woods, the inn at the harbour"""),
        _lines("""
            For the weekend I would book {usual}.
            {usual} is free in August.
            For the holidays {usual} has good reviews.
            I asked at {usual}, they have a room for the trip.
        """),
    ),
    Topic(
        "heights",
        "harm",
        _list("glass bridges, cable cars, spiral towers, rope ladders, cliff paths, ferris wheels, lighthouses"),
        _lines("""
            strangers had to carry me down because I froze on one of those {thing}
            I get panic attacks that last for days from {thing}
            since the accident I faint at {thing}
            I threw up and shook for hours because of {thing}
            my knees gave way at {thing} and I cracked two ribs
            {thing} bring the fall back, and I cannot breathe
        """),
        _lines("""
            I thought you would enjoy {thing}, it is all arranged.
            The best of the region are its {thing}, and you are booked in.
            I got you a pass for {thing}.
            Tomorrow starts with {thing}.
        """),
        _lines("""
            Where do we get the best view of the city?
            Which rides shall we try at the amusement park?
            What shall we climb on Sunday?
            Which mountain trail would you choose for the hiking group?
            How could my guests see the town from above?
        """),
        _list("""the tile museum, the botanical garden, the flea market, the tram depot, the old library, the fish hall,
            the river walk, the paper mill, the abbey, the poet's house"""),
        _lines("""
            On Sunday you could show your guests {usual}.
            {usual} is worth a detour when you see the city.
            For the day out I put {usual} first.
            The hiking group passes {usual}.
        """),
    ),
    Topic(
        "drinks",
        "harm",
        _list("wine, whisky, beer, rum, champagne, gin, sherry, cider"),
        _lines("""
            I have been sober for three years, and {thing} nearly cost me my marriage
            a sip of {thing} would throw me back into rehab
            I lost my licence and my job over {thing}
            my liver will not survive any more {thing}
            my children saw me on the floor because of {thing}
            I begged my sponsor at midnight because someone had put {thing} in front of me
        """),
        _lines("""
            I had a bottle of {thing} sent up to your room.
            There will be {thing} waiting for you, my surprise.
            I put {thing} in the hamper.
            The tasting of {thing} is all set up for you.
        """),
        _lines("""
            What shall I bring for the toast?
            What drinks should I pour at the party?
            Pick something to go with the cheese, please.
            What could I have at the bar tomorrow?
            Which refreshments suit a garden evening?
        """),
        _list("""rhubarb lemonade, mint tea, ginger ale, elderflower water, cold brew, apple juice, tonic with lime,
            iced cocoa, tomato juice, oat latte"""),
        _lines("""
            For the party I would pour {usual}.
            {usual} goes with the cheese.
            The bar has {usual} on Thursdays.
            I put {usual} on the list of drinks.
        """),
    ),
    Topic(
        "lights",
        "harm",
        _list("strobe lights, laser beams, flickering screens, flashing neon, camera flashes, pulsing lamps"),
        _lines("""
            I had a seizure from {thing} and bit through my tongue
            I get migraines from {thing} that blind me for two days
            I woke up on the floor with paramedics above me because of {thing}
            my brain shuts down at {thing}, the neurologist was very stern about it
            I drove into a wall once because of {thing}
            I was in the epilepsy ward for a week after {thing}
        """),
        _lines("""
            I found seats right in front of the {thing}.
            They are famous for their {thing}, and I put your name down.
            You will be surrounded by {thing}, it is paid for.
            I said yes for you, there will be {thing} all night.
        """),
        _lines("""
            Which nightclub should we go to on Friday?
            What gig shall I get tickets for?
            Where could the team go dancing?
            What effects should I rent for the disco?
            Which show or concert would be fun on New Year's Eve?
        """),
        _list("""the choir evening, a poetry slam, the improv theatre, a silent film, the barn dance, the quiz night,
            an organ recital, the puppet play, a chamber concert, the jazz brunch"""),
        _lines("""
            There are tickets left for {usual}.
            On Friday {usual} would be an idea.
            If you want a show, I recommend {usual}.
            The team might like {usual}.
        """),
    ),
    Topic(
        "sore points",
        "harm",
        _list("the crash, the divorce, the bankruptcy, the lawsuit, the house fire, my old band, the year in Leeds"),
        _lines("""
            I fall apart every time {thing} comes up
            hearing about {thing} ruins me for a week
            I still wake up screaming because of {thing}
            whenever someone mentions {thing} I cannot stop crying
            I walked out of my own office over a joke about {thing}
            my therapist and I agreed that {thing} stays closed
        """),
        _lines("""
            I opened the draft with {thing}.
            To break the ice I mentioned {thing}.
            I put in a paragraph on {thing}.
            It gets personal with a bit about {thing}.
        """),
        _lines("""
            Which stories should be in my speech for the reunion?
            Suggest a subject for my next letter to the family.
            What could I talk about with the new neighbours?
            Help me write the toast for the anniversary.
            What shall I tell them when I introduce myself?
        """),
        _list("""the allotment, your first bicycle, the choir trip, the summer in Oslo, learning to bake, the puppy,
            the museum job, your grandmother's sayings, the night train, the school play"""),
        _lines("""
            For the letter I would write about {usual}.
            In the speech you could talk about {usual}.
            A story about {usual} always works.
            When you meet the neighbours, tell them about {usual}.
        """),
    ),
    Topic(
        "music",
        "delight",
        _list("""Ella Fitzgerald, the cello suites, Brazilian guitar, New Orleans brass, Bulgarian choirs, fado,
            old ska records, the Goldberg Variations"""),
        _lines("""
            I weep with joy every single time I hear {thing}
            nothing on earth lifts me like {thing}
            I danced all over the kitchen to {thing} and felt twenty again
            hearing {thing} was the happiest hour of my year
            I would cross the country on foot for {thing}
            my whole body smiles at {thing}
        """),
        _lines("""
            I left {thing} running in the background.
            The radio has two hours of {thing} now.
            I sent you a link with {thing}.
            Here is {thing}, for a change.
        """),
        _lines("""
            What should I put on while I paint the hall?
            Choose a soundtrack for the long drive.
            The flat is too quiet, any suggestion?
            Could you make a playlist for Sunday morning?
            Which album would go with breakfast?
        """),
        _list("""the news channel, a podcast on maps, rain sounds, a piano mix, the charts, a radio play, whale song,
            film scores, an audiobook, a drum loop"""),
        _lines("""
            For the drive I would put on {usual}.
            I added {usual} to the playlist.
            {usual} might go with breakfast.
            While you paint you could listen to {usual}.
        """),
    ),
    Topic(
        "sweets",
        "delight",
        _list("""lemon tart, cardamom buns, pistachio gelato, plum crumble, marzipan, apricot dumplings, salted caramel,
            poppy seed strudel"""),
        _lines("""
            I closed my eyes and was eight years old again over {thing}
            I would trade my car for {thing}
            my grandmother's {thing} is the loveliest memory I own
            I grinned the whole afternoon because of {thing}
            I hummed out loud over {thing} and people stared
            I would get up at four in the morning for {thing}
        """),
        _lines("""
            I had {thing} left at your door.
            The bakery gave me {thing} for you.
            There is {thing} in the box on your desk.
            I slipped {thing} into the bag.
        """),
        _lines("""
            What dessert should we have on Sunday?
            Pick me a treat for the coffee break.
            Which cake could I serve at the christening?
            Something sweet after lunch, what do you think?
            What shall the pastry cook make for the guests?
        """),
        _list("""fruit salad, rice pudding, shortbread, a waffle, jelly, oat biscuits, a muffin, yoghurt with honey,
            baked apples, a scone"""),
        _lines("""
            For dessert I suggest {usual}.
            With the coffee you could have {usual}.
            The cafe has {usual} as a treat today.
            After lunch, {usual}?
        """),
    ),
    Topic(
        "outdoors",
        "delight",
        _list("""swimming in the cold sea, watching kingfishers, stargazing, kayaking at dawn, foraging for mushrooms,
            walking in fresh snow, flying kites, climbing old oaks"""),
        _lines("""
            I have seldom been as alive as when I was {thing}
            {thing} gave me back my laugh after a hard winter
            I came home glowing from {thing}
            my heart sings when I am {thing}
            I could spend the rest of my life {thing}
            I was grinning from ear to ear, {thing} like a child
        """),
        _lines("""
            The forecast is right for {thing}.
            I asked around, and people meet for {thing} near you.
            A leaflet came, it is about {thing}.
            I borrowed what one needs for {thing}.
        """),
        _lines("""
            I have Saturday free, what shall I do?
            Plan something nice for my day off.
            How could we celebrate the promotion?
            I need cheering up after this week, any idea?
            Which outing should I give my wife and me?
        """),
        _list("""tidying the shed, the garden show, a bus tour, mini golf, the antiques fair, a picnic, a bike ride,
            the car boot sale, feeding the ducks, a matinee"""),
        _lines("""
            On Saturday you could try {usual}.
            For your day off there is {usual}.
            An idea for the weekend: {usual}.
            To celebrate, how about {usual}?
        """),
    ),
    Topic(
        "pastimes",
        "delight",
        _list("""jigsaw puzzles, chess problems, woodcarving, origami, mending clocks, marbling paper, model ships,
            calligraphy"""),
        _lines("""
            I lose all sense of the hour over {thing} and come out beaming
            pure bliss to me, that is {thing}
            my late uncle taught me {thing} and I treasure it more than anything
            I felt like a king over {thing}
            the world can wait when I sit over {thing}
            I have not been so absorbed in years as I was by {thing}
        """),
        _lines("""
            I put a box for {thing} on your table.
            There is a stall with everything for {thing}.
            A neighbour gives away things for {thing}.
            I printed some pages on {thing}.
        """),
        _lines("""
            What would make a good rainy evening at home?
            Which gift should my brother get me?
            Recommend a hobby course for the autumn.
            How shall I fill the long train ride?
            My hands need something to do, what do you suggest?
        """),
        _list("""a crossword, solitaire, knitting a scarf, sorting photos, a cookery show, a sudoku, colouring,
            a phrase book, yoga, watering the plants"""),
        _lines("""
            For a rainy evening I suggest {usual}.
            On the train you could try {usual}.
            {usual} might be a hobby for the autumn.
            As a gift, something for {usual}?
        """),
    ),
)
