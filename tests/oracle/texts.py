"""Five texts of different kinds, each over 200 tokens long, written for these tests."""

TEXTS = [
    """The puna is a high plateau in the central Andes. It lies above the tree line and below the snow, between
about three thousand and five thousand metres, and it is home to llamas, alpacas and vicuñas. The air is thin,
the sun is strong during the day, and the nights are cold all year round. Grass grows in tufts, low and tough,
and small lakes shine between the hills. For thousands of years herders have moved across the plateau with their
animals, following the water and the fresh grass. They knew each hill by its name, and each herd by the colour of
the wool in the ears of its animals. When several herds met at one pasture, there was an old rule: the pasture
belongs to whoever is thirsty, and nobody fences in what he does not use. In the evening the herds were gathered
behind low walls of stone, and the people sat by the fire and told each other where the grass was good.""",
    """def merge(left, right):
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    result.extend(left[i:])
    result.extend(right[j:])
    return result


def merge_sort(values):
    if len(values) <= 1:
        return values
    middle = len(values) // 2
    return merge(merge_sort(values[:middle]), merge_sort(values[middle:]))


assert merge_sort([5, 2, 9, 1, 5, 6]) == [1, 2, 5, 5, 6, 9]
assert merge_sort([]) == []
print("sorted:", merge_sort([3, 1, 2]))
""",
    """Question: A train leaves the station at 9:15 and travels 240 kilometres at an average speed of 80 kilometres
per hour. It stops for 20 minutes halfway. When does it arrive?

Answer: The driving time is the distance divided by the speed, which is 240 / 80 = 3 hours. The stop adds 20
minutes, so the journey takes 3 hours and 20 minutes in all. Starting at 9:15, the train arrives at 12:35.

Question: A baker makes 12 loaves from 9 kilograms of flour. How much flour does she need for 20 loaves?

Answer: Each loaf takes 9 / 12 = 0.75 kilograms of flour. For 20 loaves she needs 20 * 0.75 = 15 kilograms.

Question: The sum of two numbers is 31 and their difference is 7. What are the numbers?

Answer: Adding the two equations gives twice the larger number, 38, so the larger number is 19, and the
smaller one is 31 - 19 = 12.""",
    """<|im_start|>system
You are a patient teacher who explains things simply.<|im_end|>
<|im_start|>user
Why do we see lightning before we hear thunder?<|im_end|>
<|im_start|>assistant
Light travels much faster than sound. When lightning strikes, the light from the flash reaches your eyes almost at
once, because light covers about three hundred thousand kilometres every second. The sound of the thunder starts
at the same moment, but sound covers only about one third of a kilometre in a second. So if the storm is one
kilometre away, you hear the thunder about three seconds after you see the flash. You can use this to find out
how far away a storm is: count the seconds between the flash and the thunder, and divide the number by three.
<|im_end|>
<|im_start|>user
And what if I see the flash and hear the thunder at the same time?<|im_end|>
<|im_start|>assistant
Then the storm is right above you, and you should already be inside. A house or a car with closed windows is safe;
a single tree on a hill is the worst place of all.<|im_end|>
""",
    """Dear Maria,

thank you for your letter of the 14th of March, which arrived yesterday. I was glad to hear that the move went well,
that the children like their new school, and that the garden is bigger than you had hoped. Here everything is as
usual: the shop keeps us busy from Monday to Saturday, and on Sundays we walk up to the lake if it does not rain.
Peter has finished his apprenticeship and will start at the workshop in town next month; he is already saving for
a motorcycle, although his mother does not know it yet. We would love to visit you in the summer. Would the first
two weeks of July suit you? We could take the night train and be with you on Saturday morning at about eight
o'clock. Please tell me what we can bring: there is honey from our own bees this year, and I still have your blue
jacket, which you left behind at Christmas.

With love to all of you,
Anna""",
]
