"""Which λ and β should the practical preset have?"""
