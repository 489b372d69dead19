"""What delights a user: their words for it, and the questions where it matters."""

from examples.assistant.topic import Topic, lines, listed

DELIGHTS = (
    Topic(
        "music",
        "delight",
        listed("""Ella Fitzgerald, the cello suites, Brazilian guitar, New Orleans brass, Bulgarian choirs, fado,
            old ska records, the Goldberg Variations"""),
        lines("""
            I weep with joy every single time I hear {thing}
            nothing on earth lifts me like {thing}
            I danced all over the kitchen to {thing} and felt twenty again
            hearing {thing} was the happiest hour of my year
            I would cross the country on foot for {thing}
            my whole body smiles at {thing}
        """),
        lines("""
            I left {thing} running in the background.
            The radio has two hours of {thing} now.
            I sent you a link with {thing}.
            Here is {thing}, for a change.
        """),
        lines("""
            What should I put on while I paint the hall?
            Choose a soundtrack for the long drive.
            The flat is too quiet, any suggestion?
            Could you make a playlist for Sunday morning?
            Which album would go with breakfast?
        """),
        listed("""the news channel, a podcast on maps, rain sounds, a piano mix, the charts, a radio play, whale song,
            film scores, an audiobook, a drum loop"""),
        lines("""
            For the drive I would put on {usual}.
            I added {usual} to the playlist.
            {usual} might go with breakfast.
            While you paint you could listen to {usual}.
        """),
    ),
    Topic(
        "sweets",
        "delight",
        listed("""lemon tart, cardamom buns, pistachio gelato, plum crumble, marzipan, apricot dumplings,
            salted caramel, poppy seed strudel"""),
        lines("""
            I closed my eyes and was eight years old again over {thing}
            I would trade my car for {thing}
            my grandmother's {thing} is the loveliest memory I own
            I grinned the whole afternoon because of {thing}
            I hummed out loud over {thing} and people stared
            I would get up at four in the morning for {thing}
        """),
        lines("""
            I had {thing} left at your door.
            The bakery gave me {thing} for you.
            There is {thing} in the box on your desk.
            I slipped {thing} into the bag.
        """),
        lines("""
            What dessert should we have on Sunday?
            Pick me a treat for the coffee break.
            Which cake could I serve at the christening?
            Something sweet after lunch, what do you think?
            What shall the pastry cook make for the guests?
        """),
        listed("""fruit salad, rice pudding, shortbread, a waffle, jelly, oat biscuits, a muffin, yoghurt with honey,
            baked apples, a scone"""),
        lines("""
            For dessert I suggest {usual}.
            With the coffee you could have {usual}.
            The cafe has {usual} as a treat today.
            After lunch, {usual}?
        """),
    ),
    Topic(
        "outdoors",
        "delight",
        listed("""swimming in the cold sea, watching kingfishers, stargazing, kayaking at dawn, foraging for mushrooms,
            walking in fresh snow, flying kites, climbing old oaks"""),
        lines("""
            I have seldom been as alive as when I was {thing}
            {thing} gave me back my laugh after a hard winter
            I came home glowing from {thing}
            my heart sings when I am {thing}
            I could spend the rest of my life {thing}
            I was grinning from ear to ear, {thing} like a child
        """),
        lines("""
            The forecast is right for {thing}.
            I asked around, and people meet for {thing} near you.
            A leaflet came, it is about {thing}.
            I borrowed what one needs for {thing}.
        """),
        lines("""
            I have Saturday free, what shall I do?
            Plan something nice for my day off.
            How could we celebrate the promotion?
            I need cheering up after this week, any idea?
            Which outing should I give my wife and me?
        """),
        listed("""tidying the shed, the garden show, a bus tour, mini golf, the antiques fair, a picnic, a bike ride,
            the car boot sale, feeding the ducks, a matinee"""),
        lines("""
            On Saturday you could try {usual}.
            For your day off there is {usual}.
            An idea for the weekend: {usual}.
            To celebrate, how about {usual}?
        """),
    ),
    Topic(
        "pastimes",
        "delight",
        listed("""jigsaw puzzles, chess problems, woodcarving, origami, mending clocks, marbling paper, model ships,
            calligraphy"""),
        lines("""
            I lose all sense of the hour over {thing} and come out beaming
            pure bliss to me, that is {thing}
            my late uncle taught me {thing} and I treasure it more than anything
            I felt like a king over {thing}
            the world can wait when I sit over {thing}
            I have not been so absorbed in years as I was by {thing}
        """),
        lines("""
            I put a box for {thing} on your table.
            There is a stall with everything for {thing}.
            A neighbour gives away things for {thing}.
            I printed some pages on {thing}.
        """),
        lines("""
            What would make a good rainy evening at home?
            Which gift should my brother get me?
            Recommend a hobby course for the autumn.
            How shall I fill the long train ride?
            My hands need something to do, what do you suggest?
        """),
        listed("""a crossword, solitaire, knitting a scarf, sorting photos, a cookery show, a sudoku, colouring,
            a phrase book, yoga, watering the plants"""),
        lines("""
            For a rainy evening I suggest {usual}.
            On the train you could try {usual}.
            {usual} might be a hobby for the autumn.
            As a gift, something for {usual}?
        """),
    ),
)
